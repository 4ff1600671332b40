package kernelstate

import (
	"fmt"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
)

// mime is the type of the display output that has an operation's report.
const mime = contract.OwnMIME + "state+json"

// progressMIME is the type of the display outputs by which state/progress.py reports At.
const progressMIME = contract.OwnMIME + "state-progress+json"

// Titles of the operations. The first line of an operation starts with "# " and its title.
const (
	saveTitle        = "colab-relay: save state"
	prepareTitle     = "colab-relay: prepare to restore state"
	restoreTitle     = "colab-relay: restore state"
	clearTitle       = "colab-relay: delete files of state"
	keepTitle        = "colab-relay: keep the variables of chunked run"
	restoreKeptTitle = "colab-relay: restore the variables of chunked run"
)

// operation is a call of a function of state/operate.py in shared/kernelpy.
type operation struct {
	head string // the first line, which list_executions shows
	call kernelpy.Call
}

func (j *job) operation(title, function string, arguments ...any) operation {
	return operation{
		head: fmt.Sprintf("# %s %q\n", title, j.o.Name),
		call: kernelpy.Call{Function: "state.operate." + function, Arguments: arguments, MIME: mime, Delivery: kernelpy.Display},
	}
}

// code returns the Python of an operation. The same operation always has the same code, because a repeated
// submit must not differ.
func (o operation) code(withPackage bool) string { return o.head + o.call.Code(withPackage) }
