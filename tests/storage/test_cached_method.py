import gc
import weakref

import pytest

from structgen.storage import cached_method


class Squares:
    def __init__(self, step=1):
        self.step = step
        self.asked = []

    @cached_method
    def of(self, number):
        self.asked.append(number)
        return None if number < 0 else number * number * self.step

    @cached_method
    def sum_of(self, one, other):
        self.asked.append((one, other))
        if one == other:
            raise ValueError("they are the same")
        return self.of(one) + self.of(other)


def test_a_result_is_computed_once_for_each_object_and_arguments():
    ones, tens = Squares(), Squares(10)
    assert [ones.of(3), ones.of(3), ones.of(-1), ones.of(-1), tens.of(3)] == [9, 9, None, None, 90]
    assert ones.sum_of(3, 4) == ones.sum_of(3, 4) == 25
    assert ones.asked == [3, -1, (3, 4), 4]
    assert tens.asked == [3]


def test_an_error_is_no_result():
    ones = Squares()
    for _ in range(2):
        with pytest.raises(ValueError, match="the same"):
            ones.sum_of(2, 2)
    assert ones.asked == [(2, 2), (2, 2)]


def test_the_object_is_freed_at_once():
    gc.disable()
    try:
        ones = Squares()
        ones.of(3)
        known = weakref.ref(ones)
        del ones
        assert known() is None
    finally:
        gc.enable()
