"""pytest plugin of torch_tests.py: what a test file sets up where it is the main program is set up for pytest too."""
import ast
import inspect
import pathlib


def is_main(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("__name__ == '__main__'", '__name__ == "__main__"')


def runs_tests(node):
    """unittest.main() and what comes behind it."""
    return any(isinstance(n, ast.Call) and ast.unparse(n.func) in ("unittest.main", "absltest.main", "sys.exit")
               for n in ast.walk(node))


def set_up(module):
    tree = ast.parse(pathlib.Path(inspect.getfile(module)).read_text())
    for block in filter(is_main, tree.body):
        statements = []
        for node in block.body:
            if runs_tests(node):
                break
            statements.append(node)
        exec(compile(ast.Module(statements, []), module.__file__, "exec"), module.__dict__)


def pytest_collection_finish(session):
    if not session.config.option.collectonly:
        for module in {item.module.__name__: item.module for item in session.items}.values():
            set_up(module)
