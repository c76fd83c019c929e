"""What a person sees in a terminal: sizes, times and tables as text, and progress. Knows no other part of gett."""
