from parley.runtime.work_rate import WorkRate


def test_little_audio_says_nothing():
    rate = WorkRate()
    rate.took(200, 100)
    assert rate.real_time_factor is None


def test_work_without_audio_belongs_to_the_audio_before_it():
    rate = WorkRate()
    rate.took(1_000, 200)
    rate.took(0, 100)
    assert rate.real_time_factor == 0.3


def test_a_machine_that_becomes_slower_is_noticed_within_some_seconds_of_audio():
    rate = WorkRate()
    for _ in range(600):
        rate.took(100, 10)
    for _ in range(100):
        rate.took(100, 40)
    factor = rate.real_time_factor
    assert factor is not None and 0.24 < factor < 0.26
