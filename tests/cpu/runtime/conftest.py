"""What the tests of this folder share."""

from tests.cpu.runtime.shared_machine import machine as machine
