"""Version 3: a switch counts its tries. Switches of before had one each."""

__all__ = ["SQL"]

SQL = """
ALTER TABLE switches ADD COLUMN num_tries INTEGER NOT NULL DEFAULT 1 CHECK (num_tries >= 1);
"""
