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
	Core      Toolset = "core"
	Notebook  Toolset = "notebook"
	Page      Toolset = "page"
	Data      Toolset = "data"
	Provision Toolset = "provision"
)

// set is what a toolset consists of.
type set struct {
	name    Toolset
	purpose string // what a person or a model would want it for; core needs none
	guide   string // its line of the Guide
	tools   func() []tool
}

// sets are all toolsets, in the order in which people read them. Two sets may share tools.
var sets = []set{
	{Core, "", coreGuide, coreTools},
	{Notebook, "edits and runs .ipynb files", notebookGuide, notebookTools},
	{Page, "the notebook open in Colab", pageGuide, pageTools},
	{Data, "rows of DataFrames, SQL", dataGuide, dataTools},
	{Provision, "starts Colab VMs", provisionGuide, provisionTools},
}

// Toolsets are the names of all of them.
var Toolsets = namesOf(sets)

func namesOf(sets []set) (names []Toolset) {
	for _, s := range sets {
		names = append(names, s.name)
	}
	return names
}

// ToolsetNames returns the names of all toolsets and of what else is a choice as prose, with a
// word such as "or" before the last one.
func ToolsetNames(word string, more ...string) string {
	var names []string
	for _, s := range Toolsets {
		names = append(names, string(s))
	}
	names = append(names, more...)
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " " + word + " " + names[last]
}

// ParseToolsets reads names that are separated by commas; "all" stands for every set. The
// result has Core, and no set twice.
func ParseToolsets(text string) ([]Toolset, error) {
	wanted := map[Toolset]bool{Core: true}
	for name := range strings.SplitSeq(text, ",") {
		set := Toolset(strings.TrimSpace(name))
		if set != "all" && !slices.Contains(Toolsets, set) {
			return nil, fmt.Errorf("is %q: use all, or some of %s, separated by commas", clipName(text), ToolsetNames("and"))
		}
		wanted[set] = true
	}
	return slices.DeleteFunc(slices.Clone(Toolsets), func(s Toolset) bool { return !wanted[s] && !wanted["all"] }), nil
}

// toolsOf returns the tools of sets, each tool once, in the order in which people read them.
func toolsOf(sets []set) (all []tool) {
	known := map[string]bool{}
	for _, s := range sets {
		for _, t := range s.tools() {
			if !known[t.def.Name] {
				known[t.def.Name] = true
				all = append(all, t)
			}
		}
	}
	return all
}

// servedSets returns the sets with these names, and core.
func servedSets(names []Toolset) []set {
	return slices.DeleteFunc(slices.Clone(sets), func(s set) bool { return s.name != Core && !slices.Contains(names, s.name) })
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

// cellTools act on a notebook file, or on the tab that is connected.
func cellTools() []tool {
	return []tool{getCells(), addCodeCell(), addTextCell(), updateCell(), deleteCell(), moveCell(), runCodeCell()}
}

func notebookTools() []tool { return append(cellTools(), runNotebook()) }

func pageTools() []tool { return append([]tool{openConnection()}, cellTools()...) }

func dataTools() []tool { return []tool{previewDataframe(), queryDataframes()} }

// provisionTools start nothing before `colab-relay vm login`.
func provisionTools() []tool { return []tool{startVM(), listVMs(), stopVM()} }

// Guide returns what tells an agent what the tools of these sets are for and how to work
// with them. It is the server's instructions, which Claude Code cuts at 2 KB.
func Guide(served []Toolset) string {
	var on, off []string
	for _, s := range sets {
		switch {
		case s.name == Core || slices.Contains(served, s.name):
			on = append(on, s.guide)
		default:
			off = append(off, fmt.Sprintf("%s (%s)", s.name, s.purpose))
		}
	}
	if slices.Contains(served, Notebook) || slices.Contains(served, Page) {
		on = append(on, cellGuide)
	}
	if len(off) > 0 {
		on = append(on, fmt.Sprintf("- Toolsets that are off: %s. The user's `colab-relay install HOST --toolsets all` adds them.", strings.Join(off, ", ")))
	}
	return strings.Join(on, "\n")
}
