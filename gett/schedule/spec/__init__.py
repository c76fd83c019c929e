"""What a kernel is made of: small frozen records, one type for each kind of part. Data only; no text, no CuPy."""
