"""`IdentityMap`: equal objects are different keys, and no key's address is used again."""

from structgen.storage import IdentityMap


def test_equal_objects_are_different_keys() -> None:
    first, second = {"a": 1}, {"a": 1}
    found: IdentityMap[dict[str, int], int] = IdentityMap()
    found[first] = 1
    assert first in found
    assert second not in found
    assert (found.get(first), found.get(second)) == (1, None)
    assert (found.setdefault(first, 2), found.setdefault(second, 2)) == (1, 2)
    found[first] = 3
    assert [value for _, value in found.items()] == [3, 2]
    assert [key is one for key, one in zip(found, (first, second), strict=True)] == [True, True]
    assert len(found) == 2


def test_what_nobody_else_holds_keeps_its_entry() -> None:
    # With addresses alone, the second object would get the first one's place in memory, and value.
    found: IdentityMap[list[int], int] = IdentityMap()
    for number in range(100):
        assert found.setdefault([number], number) == number
    assert list(found) == [[number] for number in range(100)]
