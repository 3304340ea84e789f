"""Every study of the paper by its name on the command line."""

from orac.reproduce import table1_guarded_maze
from orac.reproduce.study import Study

STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY for module in (table1_guarded_maze,)
}
