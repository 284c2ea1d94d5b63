"""What token forcing finds and what it cannot: recorded runs of lossless and faulty systems under the rules."""
