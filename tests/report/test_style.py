from compositefl.algorithms import ALGORITHMS
from compositefl.report.style import METHODS, styles


def test_every_method_has_a_style_of_its_own():
    names = [cls.__name__ for cls in ALGORITHMS.values()]
    assert set(names) <= set(METHODS)
    assert len({(look.colour, look.css_dash) for look in styles(METHODS).values()}) == len(METHODS)


def test_a_method_looks_the_same_in_every_picture():
    alone, among = styles(["FedDA"]), styles(["Mine", "ZA1", "FedDA", "fednmap"])
    assert alone["FedDA"] == among["FedDA"]
    assert among["fednmap"] == styles(["FedNMap"])["FedNMap"]
    assert len(set(among.values())) == 4


def test_variants_of_a_method_differ():
    looks = styles(["FedNMap, gamma 1", "FedNMap, gamma 2", "FedNMap"])
    assert looks["FedNMap"] == styles(["FedNMap"])["FedNMap"] and len(set(looks.values())) == 3


def test_a_variant_has_no_colour_of_another_in_its_picture():
    looks = styles(["FedCanon", "FedCanon, tuned", "FedDR", "FedADMM"])
    assert len({look.colour for look in looks.values()}) == 4
