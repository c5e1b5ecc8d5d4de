from sleepconv.experiments.paper import datasets_of, table_rows
from sleepconv.experiments.paper.numbers import ACCURACY, BRAIN_SCORE, RATES, SPREAD


def test_every_table_has_a_number_for_each_of_its_rows():
    for numbers in (ACCURACY, SPREAD, RATES):
        for table, datasets in numbers.items():
            assert tuple(datasets) == datasets_of(table)
            for dataset, rows in datasets.items():
                assert list(rows) == list(table_rows(table, dataset))


def test_differences_are_those_of_the_accuracies_to_rounding():
    for datasets in ACCURACY.values():
        for rows in datasets.values():
            reference = rows["convolutional"]
            assert reference.top1_difference is None
            for row, accuracy in rows.items():
                if row != "convolutional":
                    assert abs(accuracy.top1 - reference.top1 - accuracy.top1_difference) < 0.16
                if row != "convolutional" and accuracy.top5 is not None:
                    assert abs(accuracy.top5 - reference.top5 - accuracy.top5_difference) < 0.16


def test_numbers_that_the_text_repeats():
    assert ACCURACY[1]["cifar10"]["sleep_every_10"].top1 == 85.1
    assert ACCURACY[1] == ACCURACY[5]
    assert ACCURACY[13]["imagenet"]["first_convolutional_sleep_every_1"].top1_difference == 0.1
    assert max(BRAIN_SCORE, key=lambda row: BRAIN_SCORE[row]["V1"]) == "local"
    assert BRAIN_SCORE["sleep_every_1"]["average"] == 0.396


def test_the_average_brain_score_is_the_mean_of_the_areas_to_rounding():
    for scores in BRAIN_SCORE.values():
        areas = [score for area, score in scores.items() if area != "average"]
        assert abs(sum(areas) / 5 - scores["average"]) < 0.0015
