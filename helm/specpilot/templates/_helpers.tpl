{{- define "specpilot.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "specpilot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "specpilot.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels that select a component's pods; they never change. Call with (dict "root" $ "component" "server"). */}}
{{- define "specpilot.selector" -}}
app.kubernetes.io/name: {{ include "specpilot.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "specpilot.labels" -}}
{{ include "specpilot.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: specpilot
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "specpilot.image" -}}
{{- $image := .Values.image -}}
{{- $name := $image.repository -}}
{{- if $image.registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $image.registry) $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default (printf "%s-%s" .Chart.AppVersion .Values.engine.arch) $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "specpilot.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "specpilot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "specpilot.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.podSecurityContext.runAsUser }}
runAsGroup: 0
fsGroup: {{ .Values.podSecurityContext.fsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Probes of a start-up budget: the threshold is the budget over the period, rounded up. */}}
{{- define "specpilot.startupThreshold" -}}
{{- div (add (int .Values.engine.startupBudgetSeconds) 4) 5 -}}
{{- end -}}

{{/* The state volume ties a new pod to the node of the old one, or to its end. */}}
{{- define "specpilot.hasSingleWriter" -}}
{{- if and .Values.persistence.enabled (ne .Values.persistence.accessMode "ReadWriteMany") -}}true{{- end -}}
{{- end -}}

{{- define "specpilot.isScaled" -}}
{{- if or .Values.autoscaling.hpa .Values.autoscaling.keda -}}true{{- end -}}
{{- end -}}

{{- define "specpilot.strategy" -}}
{{- $surge := eq .Values.engine.rollout "surge" -}}
{{- if eq .Values.engine.rollout "auto" -}}
{{- $surge = and (eq (int .Values.gpu.count) 0) (not (include "specpilot.hasSingleWriter" .)) -}}
{{- end -}}
{{- if $surge }}
type: RollingUpdate
rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
{{- else if and (gt (int .Values.replicas) 1) (not (include "specpilot.hasSingleWriter" .)) }}
type: RollingUpdate
rollingUpdate: {maxSurge: 0, maxUnavailable: 1}
{{- else }}
type: Recreate
{{- end }}
{{- end -}}

{{/* Kubernetes 1.20 has the budget's first version alone; the fields used here are the same. */}}
{{- define "specpilot.budgetVersion" -}}
{{- ternary "policy/v1" "policy/v1beta1" (.Capabilities.APIVersions.Has "policy/v1") -}}
{{- end -}}

{{/* Folders of the profiles, the kernels they need and the label of their GPU: what profiles/gpus.yaml says. */}}
{{- define "specpilot.families" -}}
cpu: {arch: cpu, product: ""}
h100: {arch: sm90, product: NVIDIA-H100-80GB-HBM3}
h200: {arch: sm90, product: NVIDIA-H200}
pro6000: {arch: sm120, product: NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition}
{{- end -}}
