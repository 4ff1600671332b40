package kernelstate

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// mime is what the kernel's report is displayed as.
const mime = contract.OwnMIME + "state+json"

// progressMIME is what progress.py displays where the work is as.
const progressMIME = contract.OwnMIME + "state-progress+json"

//go:embed cell.py
var cellPy string

//go:embed load.py
var loadPy string

//go:embed safe.py
var safePy string

//go:embed rebuild.py
var rebuildPy string

//go:embed arrays.py
var arraysPy string

//go:embed classes.py
var classesPy string

//go:embed reduce.py
var reducePy string

//go:embed write.py
var writePy string

//go:embed salvage.py
var salvagePy string

//go:embed rehearse.py
var rehearsePy string

//go:embed progress.py
var progressPy string

//go:embed save.py
var savePy string

//go:embed read.py
var readPy string

//go:embed restore.py
var restorePy string

//go:embed keep.py
var keepPy string

//go:embed operate.py
var operatePy string

// sources are the modules that run in the kernel, each before those that import it.
var sources = append(kernelpy.Sources("live"), [][2]string{
	{"safe", safePy}, {"rebuild", rebuildPy}, {"arrays", arraysPy}, {"classes", classesPy}, {"reduce", reducePy},
	{"write", writePy}, {"salvage", salvagePy}, {"read", readPy}, {"rehearse", rehearsePy}, {"progress", progressPy},
	{"save", savePy}, {"restore", restorePy}, {"keep", keepPy}, {"operate", operatePy},
}...)

// Titles of the operations, which begin the first lines of their cells.
const (
	saveTitle    = "colab-relay: save state"
	prepareTitle = "colab-relay: prepare to restore state"
	restoreTitle = "colab-relay: restore state"
	clearTitle   = "colab-relay: clear up after"
	keepTitle    = "colab-relay: keep the variables of chunked run"
	bringTitle   = "colab-relay: bring back the variables of chunked run"
)

// cell is the code of one operation, named as operate.py has it. Its first line is
// what list_executions shows. The same operation gives the same text, as a submit
// that is repeated must.
func (j *job) cell(title string, operation ...any) string {
	body := strings.NewReplacer(
		"LOAD", literal(loadPy),
		"SOURCES", literal(sources),
		"QUESTION", literal(operation),
	).Replace(withoutHead(cellPy))
	return fmt.Sprintf("# %s %q\n%s", title, j.o.Name, body)
}

// withoutHead is Python without the comment at its head.
func withoutHead(python string) string {
	for strings.HasPrefix(python, "#") {
		_, python, _ = strings.Cut(python, "\n")
	}
	return python
}

// literal is v as a Python literal: JSON of strings, numbers and lists of them is one
// too, as long as characters beyond the basic plane stand as they are, which is how
// encoding/json writes them.
func literal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(b)
}
