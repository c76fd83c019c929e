"""Labels and conjugations of derivatives, without arrays."""

from __future__ import annotations

from gett.arrays.derivatives import gradient_factor, gradient_flags, gradient_terms, mapped_terms


def test_the_algebra_of_derivatives() -> None:
    assert gradient_terms(("ij", "jk"), "ik", 0) == (("ik", "jk"), "ij")
    assert gradient_terms(("xij", "jk"), "ik", 0) == (("ik", "jk"), "ij")
    assert gradient_terms(("ij",), "j", 0) == (("j",), "j")
    assert gradient_flags((False, True), 0, hermitian=True) == (False, False)
    assert gradient_flags((False, True), 0, hermitian=False) == (False, True)
    assert gradient_flags((True, False), 0, hermitian=False) == (True, True)
    assert gradient_factor(1j, False, hermitian=True) == gradient_factor(1j, True, hermitian=False) == -1j
    assert mapped_terms(("ab", "bc"), "ac", (1, None)) == (("adb", "bc"), "dac")
