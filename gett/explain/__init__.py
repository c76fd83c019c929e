"""Plans told to people and programs: a summary, every detail, plain data, HTML, and a roofline drawn."""
