"""Syntax trees that the checks of the source share."""

from scripts.syntax import definitions, parse

SOURCE = """
class A:
    def b(self):
        if True:
            def c(): pass
        else:
            async def d(): pass
try:
    def e(): return lambda: 1 if True else 2
except ValueError:
    def f(): pass
finally:
    def g(): pass
match 1:
    case 1:
        class H: pass
"""


def test_definitions_are_found_at_every_depth_in_their_order():
    assert [each.name for each in definitions(parse(SOURCE).body)] == list("AbcdefgH")


def test_a_text_is_parsed_once():
    assert parse(SOURCE) is parse(SOURCE)
