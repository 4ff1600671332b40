package dataflow

import (
	"fmt"
	"slices"
	"strings"
)

// Machine is what a VM has besides processors.
type Machine struct{ GPU, TPU bool }

// Demand is something that a cell needs and that is not there.
type Demand struct {
	Cell string `json:"cell"`
	Text string `json:"text"` // for a person or a model
}

// colab is in PageCalls of a cell that imports Colab's own module.
const colab = "google.colab"

// Unmet lists what cells need and won't have: Colab's page in a browser, which does not see
// what runs here, and accelerators that the machine lacks. Code that asks first whether there
// is an accelerator needs none.
func Unmet(cells []Cell, m Machine) (unmet []Demand) {
	fromColab := slices.ContainsFunc(cells, func(c Cell) bool { return c.Facts.known() && slices.Contains(c.Facts.PageCalls, colab) })
	for _, c := range cells {
		if !c.Facts.known() {
			continue
		}
		calls := slices.DeleteFunc(slices.Clone(c.Facts.PageCalls), func(call string) bool { return call == colab || !fromColab })
		if len(calls) > 0 {
			unmet = append(unmet, Demand{c.ID, fmt.Sprintf("%s needs Colab's page in a browser: here it fails or waits for ever", strings.Join(calls, ", "))})
		}
		for _, kind := range c.Facts.Accelerators {
			if kind == "gpu" && !m.GPU || kind == "tpu" && !m.TPU {
				unmet = append(unmet, Demand{c.ID, fmt.Sprintf("it uses a %s, and this VM has none", strings.ToUpper(kind))})
			}
		}
	}
	return unmet
}
