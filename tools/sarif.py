"""The part of SARIF 2.1.0's schema that `atoll check` writes, and a validator for it.

SCHEMA is a JSON schema (draft 4): types, what is required, ranges and well-known values as the standard has them. Objects are
closed over what Atoll writes, so that a misspelt property is an error. `errors` knows the few keywords that SCHEMA uses.
"""
import re

LEVELS = ["none", "note", "warning", "error"]
TEXT, COUNT, ORDINAL = {"type": "string"}, {"type": "integer", "minimum": -1}, {"type": "integer", "minimum": 1}


def _object(required, **properties):
    out = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**out, "required": required} if required else out


def _list(item, **more):
    return {"type": "array", "items": {"$ref": f"#/definitions/{item}"}, **more}


def _ref(name):
    return {"$ref": f"#/definitions/{name}"}


SCHEMA = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    **_object(["version", "runs"], **{"$schema": {"type": "string", "pattern": r"^https://.*sarif-schema-2\.1\.0\.json$"}},
              version={"enum": ["2.1.0"]}, runs=_list("run")),
    "definitions": {
        "run": _object(["tool"], tool=_ref("tool"), invocations=_list("invocation"), results=_list("result"),
                       columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]}),
        "tool": _object(["driver"], driver=_ref("component")),
        "component": _object(["name"], name=TEXT, version=TEXT, rules=_list("rule", uniqueItems=True)),
        "rule": _object(["id"], id=TEXT, name=TEXT, shortDescription=_ref("help"), fullDescription=_ref("help"),
                        help=_ref("help"), defaultConfiguration=_object([], level={"enum": LEVELS})),
        "help": _object(["text"], text=TEXT),
        "invocation": _object(["executionSuccessful"], executionSuccessful={"type": "boolean"}, exitCode={"type": "integer"}),
        "result": _object(["message"], ruleId=TEXT, ruleIndex=COUNT, level={"enum": LEVELS}, message=_ref("message"),
                          locations=_list("location"), relatedLocations=_list("location", uniqueItems=True),
                          stacks=_list("stack", uniqueItems=True), occurrenceCount=ORDINAL),
        "message": _object(["text"], text=TEXT),
        "location": _object([], id=COUNT, physicalLocation=_ref("physical"), message=_ref("message"),
                            logicalLocations=_list("logical", uniqueItems=True)),
        "physical": _object(["artifactLocation"], artifactLocation=_ref("artifact"), region=_ref("region")),
        "artifact": _object(["uri"], uri={"type": "string", "pattern": r"^([A-Za-z0-9/_.~:@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+$"},
                            uriBaseId=TEXT),
        "region": _object(["startLine"], startLine=ORDINAL, startColumn=ORDINAL, snippet=_object([], text=TEXT)),
        "logical": _object([], name=TEXT, kind=TEXT),
        "stack": _object(["frames"], message=_ref("message"), frames=_list("frame", minItems=1)),
        "frame": _object([], location=_ref("location"))}}
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}


def _type_errors(value, schema):
    kind = schema.get("type")
    right = kind is None or (isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool)))
    if not right:
        yield f"{value!r} is not of type {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is not one of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{value} is below {schema['minimum']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{value!r} does not match {schema['pattern']}"
    if kind == "array" and len(value) < schema.get("minItems", 0):
        yield "too few items"
    if schema.get("uniqueItems") and any(v in value[:i] for i, v in enumerate(value)):
        yield "an item is there twice"
    if kind == "object":
        yield from (f"{name} is missing" for name in schema.get("required", []) if name not in value)
        yield from (f"{name} is unknown" for name in value if name not in schema["properties"])


def errors(log):
    """What is wrong with a log, a line each; [] for a valid one."""
    out, todo = [], [("log", log, SCHEMA)]
    while todo:
        path, value, schema = todo.pop()
        if "$ref" in schema:
            schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
        wrong = list(_type_errors(value, schema))
        out += [f"{path}: {w}" for w in wrong]
        if isinstance(value, dict):
            todo += [(f"{path}.{k}", v, schema.get("properties", {})[k]) for k, v in value.items()
                     if k in schema.get("properties", {})]
        elif isinstance(value, list) and "items" in schema:
            todo += [(f"{path}[{i}]", v, schema["items"]) for i, v in enumerate(value)]
    return out
