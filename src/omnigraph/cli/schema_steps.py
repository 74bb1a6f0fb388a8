"""Steps of a change of schema in words."""

from __future__ import annotations

from typing import Any

from omnigraph.catalog.steps import Constraint


def describe_step(step: dict[str, Any]) -> str:
    """One step of a plan in words."""
    kind, where = step["kind"], f"{step.get('type_kind')} '{step.get('type_name')}'"
    name = f"'{step.get('type_name')}.{step.get('property_name')}'"
    match kind:
        case "add_type":
            return f"add {step['type_kind']} '{step['name']}'"
        case "rename_type":
            return f"rename {step['type_kind']} '{step['from']}' to '{step['to']}'"
        case "add_property":
            filled = f", default {step['default']}" if step.get("default") else ""
            return f"add property {name} ({_type_text(step['property_type'])}{filled}) on {where}"
        case "rename_property":
            return f"rename property '{step['type_name']}.{step['from']}' to '{step['to']}' on {where}"
        case "widen_property":
            return f"widen property {name} to {_type_text(step['property_type'])} on {where}"
        case "make_nullable":
            return f"allow null for property {name} on {where}"
        case "make_required":
            filled = f", default {step['default']} for {_rows(step)}" if step.get("rows") else ""
            return f"require property {name}{filled} on {where}"
        case "set_default":
            default = step["default"]
            return f"{'drop the default' if default is None else f'set the default {default}'} of {name} on {where}"
        case "set_enum":
            values = step["enum_values"]
            kind = "String" if values is None else f"enum({', '.join(values)})"
            return f"make property {name} {kind} on {where}"
        case "change_cardinality":
            return f"change {_card(step['from'])} to {_card(step['to'])} on {where}"
        case "add_constraint" | "drop_constraint":
            return f"{kind.partition('_')[0]} {Constraint.of(step['constraint'])} on {where}"
        case "update_type_metadata":
            return f"update the annotations of {step['type_kind']} '{step['name']}'"
        case "update_property_metadata":
            return f"update the annotations of property {name} on {where}"
        case "drop_type":
            return f"drop {step['type_kind']} '{step['name']}' ({step['mode']} mode){_lost(step)}"
        case "drop_property":
            return f"drop property {name} of {where} ({step['mode']} mode){_lost(step)}"
        case "extend_enum":
            return f"add {', '.join(step['added_values'])} to the enum of {name} on {where}"
        case _:
            code = f"[{step['code']}] " if step.get("code") else ""
            return f"unsupported: {code}{step.get('entity')}: {step.get('reason')}"


def describe_rows(step: dict[str, Any]) -> list[str]:
    """The rows that stand in the way of a step, a line each; none for a step that can be done."""
    shown = step.get("rows") if step["kind"] == "unsupported_change" else None
    lines = [f"{row['id']}: {row['problem']}" for row in shown or ()]
    left = step.get("row_count", 0) - len(lines)
    return [*lines, f"and {left} more"] if left > 0 else lines


def _rows(step: dict[str, Any]) -> str:
    return "1 row" if step["rows"] == 1 else f"{step['rows']} rows"


def _lost(step: dict[str, Any]) -> str:
    return f": {_rows(step)}" if step.get("rows") else ""


def _card(bounds: dict[str, Any]) -> str:
    return f"@card({bounds['min']}..{'' if bounds['max'] is None else bounds['max']})"


def _type_text(described: dict[str, Any]) -> str:
    scalar = described["scalar"]
    text = f"Vector({scalar['Vector']})" if isinstance(scalar, dict) else str(scalar)
    if described.get("enum_values"):
        text = f"enum({', '.join(described['enum_values'])})"
    if described.get("list"):
        text = f"[{text}]"
    return f"{text}?" if described.get("nullable") else text
