// Package toolsets has the names of the groups of tools that a relay serves or leaves out, for
// settings and commands as well as for the tools.
//
// It must not know any tool: which ones a set has is in relay/op. Start reading at Toolset.
package toolsets

import (
	"fmt"
	"slices"
	"strings"
)

// Toolset is a group of tools that a relay serves or leaves out. Core is always served:
// the answers and errors of all others name its tools.
type Toolset string

// Toolsets.
const (
	Core      Toolset = "core"
	Notebook  Toolset = "notebook"
	Page      Toolset = "page"
	Data      Toolset = "data"
	Provision Toolset = "provision"
)

// All are all toolsets, in the order in which people read them.
var All = []Toolset{Core, Notebook, Page, Data, Provision}

// Names returns the names of all toolsets and of what else is a choice as prose, with a
// word such as "or" before the last one.
func Names(word string, more ...string) string {
	var names []string
	for _, s := range All {
		names = append(names, string(s))
	}
	names = append(names, more...)
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

// maxQuoted bounds, in bytes, how much of a wrong list an error quotes.
const maxQuoted = 60

// Parse reads names that are separated by commas; "all" stands for every set. The
// result has Core, and no set twice.
func Parse(text string) ([]Toolset, error) {
	wanted := map[Toolset]bool{Core: true}
	for name := range strings.SplitSeq(text, ",") {
		set := Toolset(strings.TrimSpace(name))
		if set != "all" && !slices.Contains(All, set) {
			return nil, fmt.Errorf("is %q: use all, or some of %s, separated by commas", text[:min(len(text), maxQuoted)], Names("and"))
		}
		wanted[set] = true
	}
	return slices.DeleteFunc(slices.Clone(All), func(s Toolset) bool { return !wanted[s] && !wanted["all"] }), nil
}
