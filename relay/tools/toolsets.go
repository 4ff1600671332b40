package tools

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
	Core     Toolset = "core"
	Notebook Toolset = "notebook"
	Data     Toolset = "data"
)

// Toolsets are all of them, in the order in which people read them.
var Toolsets = []Toolset{Core, Notebook, Data}

// purposes says for each set but core what a person or a model would want it for.
var purposes = map[Toolset]string{
	Notebook: "reads, edits and runs .ipynb files",
	Data:     "previews DataFrames and queries them with SQL",
}

// ParseToolsets reads names that are separated by commas; "all" stands for every set. The
// result has Core, and no set twice.
func ParseToolsets(text string) ([]Toolset, error) {
	wanted := map[Toolset]bool{Core: true}
	for name := range strings.SplitSeq(text, ",") {
		set := Toolset(strings.TrimSpace(name))
		if set != "all" && !slices.Contains(Toolsets, set) {
			return nil, fmt.Errorf("is %q: use all, or some of core, notebook and data, separated by commas", clipName(text))
		}
		wanted[set] = true
	}
	return slices.DeleteFunc(slices.Clone(Toolsets), func(s Toolset) bool { return !wanted[s] && !wanted["all"] }), nil
}

// tools returns the set's tools, in the order in which people read them.
func (s Toolset) tools() []tool {
	switch s {
	case Notebook:
		return notebookTools()
	case Data:
		return dataTools()
	}
	return coreTools()
}

func coreTools() []tool {
	return []tool{
		checkConnection(), probeEnvironment(),
		runQuick(), runLong(), runChunked(), getCheckpoint(),
		getExecution(), listExecutions(), interruptExecution(), provideInput(),
		restartKernel(), listVariables(), inspectVariable(), cleanup(),
		listFiles(), downloadFromColab(), uploadToColab(),
		saveState(), restoreState(), installPackages(),
	}
}

func notebookTools() []tool {
	return []tool{
		getCells(), addCodeCell(), addTextCell(), updateCell(), deleteCell(), moveCell(),
		runCodeCell(), runNotebook(),
	}
}

func dataTools() []tool { return []tool{previewDataframe(), queryDataframes()} }

// allTools returns the tools of every set.
func allTools() (all []tool) {
	for _, s := range Toolsets {
		all = append(all, s.tools()...)
	}
	return all
}

// Guide returns what tells an agent what the tools of these sets are for and how to work
// with them. It is the server's instructions, which Claude Code cuts at 2 KB.
func Guide(served []Toolset) string {
	var b strings.Builder
	b.WriteString(coreGuide)
	var off []string
	for _, s := range Toolsets[1:] {
		if slices.Contains(served, s) {
			b.WriteString("\n" + setGuides[s])
		} else {
			off = append(off, fmt.Sprintf("%s (%s)", s, purposes[s]))
		}
	}
	if len(off) > 0 {
		fmt.Fprintf(&b, "\n- Toolsets that are off: %s. If needed, the user runs `colab-relay install HOST --toolsets all` and restarts the host.", strings.Join(off, ", "))
	}
	return b.String()
}
