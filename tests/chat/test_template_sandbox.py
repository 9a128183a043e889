"""Values that a chat template makes are bounded, and what it writes is what transformers lets it write."""

import pytest

import modern_templates
import tiny
from quaere.chat import template
from quaere.chat.template import ChatEnvironment, ChatTemplate
from quaere.errors import TemplateRefused

FORTY = "{% for i in range(40) %}"
END = "{% endfor %}"
HOSTILE = {
    "squares": "{% set n = namespace(v=9) %}" + FORTY + "{% set n.v = n.v * n.v %}" + END,
    "a power": "{% set n = 9 %}{{ n ** n }}",
    "doubled by +": "{% set n = namespace(v='ab') %}" + FORTY + "{% set n.v = n.v + n.v %}" + END,
    "doubled by ~": "{% set n = namespace(v='ab') %}" + FORTY + "{% set n.v = n.v ~ n.v %}" + END,
    "a doubled list": "{% set n = namespace(v=[1]) %}" + FORTY + "{% set n.v = n.v + n.v %}" + END,
    "lists in lists": "{% set n = namespace(v=[1]) %}" + FORTY + "{% set n.v = [n.v, n.v] %}" + END,
    "tuples in tuples": "{% set n = namespace(v=1) %}" + FORTY + "{% set n.v = (n.v, n.v) %}" + END,
    "dicts in dicts": "{% set n = namespace(v=1) %}" + FORTY + "{% set n.v = {1: n.v, 2: n.v} %}" + END,
    "namespaces in namespaces": "{% set n = namespace(v=1) %}"
    + FORTY
    + "{% set n.v = namespace(a=n.v, b=n.v) %}"
    + END
    + "{{ n.v }}",
    "views of a dict": "{% set d = {1: 'a' * 1000000} %}{{ [d.values()] * 1000 }}",
    "a repeated text": "{{ 'a' * 9999999999 }}",
    "a repeated list": "{{ ([1] * 9999999999)|length }}",
    "a width of %": "{{ '%9999999999d' % 1 }}",
    "a starred width": "{{ '%*d' % (9999999999, 1) }}",
    "a width of format": "{{ '{:9999999999}'.format(1) }}",
    "a nested width": "{{ '{:{}}'.format(1, 9999999999) }}",
    "a width of the filter": "{{ '%9999999999d'|format(1) }}",
    "a width of a date": "{{ strftime_now('%9999999999Y') }}",
    "ljust": "{{ 'a'.ljust(9999999999) }}",
    "zfill": "{{ 'a'.zfill(9999999999) }}",
    "expandtabs": "{{ '\\t'.expandtabs(9999999999) }}",
    "center": "{{ 'a'|center(9999999999) }}",
    "indent": "{{ 'a\\nb'|indent(9999999999) }}",
    "tojson": "{{ [1]|tojson(indent=9999999999) }}",
    "batch": "{{ [1]|batch(9999999999, 0)|list|length }}",
    "bytes of a number": "{{ (1).to_bytes(9999999999, 'big')|length }}",
    "replace": "{% set s = 'a' * 100000 %}{{ s.replace('a', s)|length }}",
    "the filter replace": "{% set s = 'a' * 100000 %}{{ s|replace('a', s)|length }}",
    "join": "{% set s = 'a' * 100000 %}{{ s.join(range(100000)|map('string')|list)|length }}",
    "translate": "{% set s = 'a' * 100000 %}{{ s.translate({97: s})|length }}",
    "a long output": "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s }}{% endfor %}",
    "a long macro": "{% macro m(s) %}{{ s }}{{ s }}{% endmacro %}{% set n = namespace(v='ab') %}"
    + FORTY
    + "{% set n.v = m(n.v) %}"
    + END,
    "a long block": "{% set n = namespace(v='ab') %}"
    + FORTY
    + "{% set x %}{{ n.v }}{{ n.v }}{% endset %}{% set n.v = x %}"
    + END,
    "slices": "{% set s = 'a' * 1000000 %}{% for i in range(99999) %}{% set x = s[i:] %}{% endfor %}",
    "a long number of digits": "{{ ('f' * 1000000)|int(base=16) }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_value_without_bound_is_refused_with_a_reason(name):
    with pytest.raises(TemplateRefused, match=r"the chat template (makes|uses|computes)") as caught:
        ChatEnvironment().render(HOSTILE[name], {})
    assert "\n" not in str(caught.value)


def test_a_tokenizer_with_such_a_template_is_refused():
    tokenizer = tiny.tokenizer("chatml")
    tokenizer.chat_template = HOSTILE["squares"] + tokenizer.chat_template
    with pytest.raises(TemplateRefused, match="a number of more than 4,096 bits"):
        ChatTemplate(tokenizer)


def test_a_template_out_of_memory_gets_a_reason():
    def fail(_):
        raise MemoryError

    environment = ChatEnvironment()
    environment.globals["fail"] = fail
    with pytest.raises(TemplateRefused, match="needs more memory than there is"):
        environment.render("{{ fail(1) }}", {})


def test_all_results_of_a_rendering_are_counted_together_and_anew_in_the_next(monkeypatch):
    environment = ChatEnvironment()
    source = "{% for i in range(n) %}{% set x = 'a' * 10000 %}{% endfor %}"
    monkeypatch.setattr(template, "MAX_TOTAL", 1_000_000)
    for _ in range(3):
        environment.render(source, {"n": 80})
    with pytest.raises(TemplateRefused, match="more than 1,000,000 bytes of values"):
        environment.render(source, {"n": 200})


SOURCES = {
    **{name: value for name, value in vars(modern_templates).items() if name.isupper() and isinstance(value, str)},
    "operators": "{{ 2 + 3 * 4 - 1 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ 'a' ~ 1 ~ none }} {{ '%s-%5.2f' % ('x', 1.5) }}",
    "containers": "{% set n = namespace(l=[]) %}{% for m in messages %}{% set n.l = n.l + [m.role] %}{% endfor %}"
    "{{ n.l }} {{ {'a': (1, 2)} }} {{ n.l[1:] }} {{ n.l[::-1]|join(', ') }} "
    "{% for a, b in {'x': 1}.items() %}{{ a }}{% endfor %}",
    "filters": "{{ messages|tojson }} {{ tools|tojson(indent=2) }} {{ messages|map(attribute='role')|list }} "
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ 'a b'|title|replace('A', 'c')|indent(2) }}",
    "methods": "{{ messages[0].content.split(' ')[-1].upper().strip('.') }} {{ '{:>4}|{}'.format(1, 'x') }} "
    "{{ dict(a=1).items()|list }} {{ messages[0].get('none') is none }}",
    "blocks": "{% macro m(x, y=2) %}<{{ x }}{{ y }}>{% endmacro %}{{ m(1) }}"
    "{% generation %}{{ m(3, 4) }}{% endgeneration %}"
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}"
    "{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    "{% set t %}x{{ eos_token }}{% endset %}{{ t }}{% call m(5) %}{% endcall %}\n  {%- if true %} y {% endif %}\n",
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("opens_turn", [True, False])
def test_a_template_writes_what_it_writes_in_transformers(name, opens_turn):
    tokenizer = tiny.tokenizer("qwen")
    tokenizer.chat_template = SOURCES[name]
    messages = [{"role": role, "content": f"A {role} says <b>é."} for role in ("system", "user", "assistant", "user")]
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"q": ["x", 1, None]}}}]
    values = {**tokenizer.special_tokens_map, "messages": messages, "tools": tools, "documents": None}

    def outcome(render):
        try:
            return render()
        except TemplateRefused:
            raise
        except Exception as error:  # a template may refuse these roles, in both
            return type(error), str(error)

    expected = outcome(
        lambda: tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=opens_turn)
    )
    found = outcome(lambda: ChatEnvironment().render(SOURCES[name], {**values, "add_generation_prompt": opens_turn}))
    assert found == expected
