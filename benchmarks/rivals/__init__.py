"""The rivals that gett is measured against: contraction by transposed copies, by hand and through cuTENSOR."""
