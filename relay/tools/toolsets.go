package tools

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"colabrelay/relay/toolsets"
)

// set is what a toolset consists of.
type set struct {
	name    toolsets.Toolset
	purpose string // what a person or a model would want it for; core needs none
	guide   string // its line of the Guide
	tools   func() []tool
}

// sets are all toolsets, in the order of toolsets.All. Two sets may share tools.
var sets = []set{
	{toolsets.Core, "", coreGuide, sync.OnceValue(coreTools)},
	{toolsets.Notebook, "edits and runs .ipynb files", notebookGuide, sync.OnceValue(notebookTools)},
	{toolsets.Page, "the notebook open in Colab", pageGuide, sync.OnceValue(pageTools)},
	{toolsets.Data, "rows of DataFrames, SQL", dataGuide, sync.OnceValue(dataTools)},
	{toolsets.Provision, "starts Colab VMs", provisionGuide, sync.OnceValue(provisionTools)},
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
func servedSets(names []toolsets.Toolset) []set {
	return slices.DeleteFunc(slices.Clone(sets), func(s set) bool { return s.name != toolsets.Core && !slices.Contains(names, s.name) })
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
func Guide(served []toolsets.Toolset) string {
	var on, off []string
	for _, s := range sets {
		switch {
		case s.name == toolsets.Core || slices.Contains(served, s.name):
			on = append(on, s.guide)
		default:
			off = append(off, fmt.Sprintf("%s (%s)", s.name, s.purpose))
		}
	}
	if slices.Contains(served, toolsets.Notebook) || slices.Contains(served, toolsets.Page) {
		on = append(on, cellGuide)
	}
	if len(off) > 0 {
		on = append(on, fmt.Sprintf("- Toolsets that are off: %s. The user's `colab-relay install HOST --toolsets all` adds them.", strings.Join(off, ", ")))
	}
	return strings.Join(on, "\n")
}
