"""Media streams of phone calls that outlive the process that holds their conversation (ADR 0023)."""
