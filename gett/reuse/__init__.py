"""What calls of a plan share: results of constants, and intermediates that a change of operands leaves as they are."""
