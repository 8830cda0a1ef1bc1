from structgen.storage import Numbers


def test_a_key_has_one_number_and_a_number_has_one_key():
    numbers = Numbers("ab")
    assert [numbers[key] for key in "bcacdb"] == [1, 2, 0, 2, 3, 1]
    assert numbers.listed == ["a", "b", "c", "d"]
    assert "e" not in numbers
    assert numbers.get("e", -1) == -1
    assert len(numbers) == len(numbers.listed) == 4


def test_keys_may_be_added_while_they_are_read():
    numbers = Numbers([10])
    for key in numbers.listed:
        numbers[key // 2]
    assert numbers.listed == [10, 5, 2, 1, 0]
