package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/notebook"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
	"colabrelay/relay/toolsets"
)

// Completion runs each time a person presses Tab, so it uses no network and little time.
const (
	completionTime = time.Second
	maxCompletions = 50 // newest runs
)

// AddCompletions completes the arguments of the commands that do not complete their own, and
// the value of --toolsets.
func AddCompletions(root *cobra.Command, set *config.Settings) {
	for _, cmd := range append([]*cobra.Command{root}, root.Commands()...) {
		if cmd.Flags().Lookup("toolsets") == nil {
			continue
		}
		if err := cmd.RegisterFlagCompletionFunc("toolsets", completeToolsets); err != nil {
			panic(err) // the flag exists
		}
	}
	for _, cmd := range root.Commands() {
		arguments := strings.Fields(cmd.Use)[1:]
		switch {
		case cmd.ValidArgsFunction != nil || len(cmd.ValidArgs) > 0:
		case len(arguments) == 0:
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		case strings.HasPrefix(arguments[len(arguments)-1], "[ID"):
			cmd.ValidArgsFunction = completeRuns(set, len(arguments)-1, strings.Contains(cmd.Use, "[ID...]"))
		}
	}
}

// completeToolsets offers the toolsets that the list typed so far does not have.
func completeToolsets(_ *cobra.Command, _ []string, typed string) (lists []string, _ cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	chosen := strings.Split(before, ",")
	names := []string{"all"}
	for _, each := range toolsets.All {
		names = append(names, string(each))
	}
	if !slices.Contains(chosen, "all") {
		for _, name := range names {
			if !slices.Contains(chosen, name) && (name != "all" || before == "") {
				lists = append(lists, before+name)
			}
		}
	}
	return lists, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder // a comma may follow
}

// CompleteRuntimes offers the names of the paired runtimes to the shell.
func CompleteRuntimes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	store, err := pairing.OpenDefault()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := store.List()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, r := range all {
		names = append(names, cobra.CompletionWithDesc(r.Name, r.URL))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// FirstArgument uses complete for the first argument only.
func FirstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, typed)
	}
}

// completeRuns offers the ids of the runs that this computer keeps, newest first, for the
// argument with that index, and for those after it if several is true.
func completeRuns(set *config.Settings, first int, several bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) < first {
			return nil, cobra.ShellCompDirectiveDefault // a file
		}
		if len(args) > first && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return inTime(func() (ids []string) {
			dir := config.Load(*set).HistoryDir
			if dir == "" {
				return nil
			}
			all, _ := history.New(history.Config{Dir: dir}).List()
			for _, r := range all[:min(len(all), maxCompletions)] {
				ids = append(ids, cobra.CompletionWithDesc(plain.Line(r.ExecutionID), plain.Line(fmt.Sprintf("%s, %s: %.40s", r.Runtime, r.Status, cmp.Or(r.Name, r.Code)))))
			}
			return ids
		}), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// completeCells offers the ids of a notebook's cells with their headlines.
func completeCells(path string) []string {
	return inTime(func() (ids []string) {
		file, err := notebook.OpenFile(path, "")
		if err != nil {
			return nil
		}
		d, err := file.Read()
		for i := 0; err == nil && i < d.Len(); i++ {
			cell := d.Cell(i)
			ids = append(ids, cobra.CompletionWithDesc(plain.Line(cell.Handle), plain.Line(fmt.Sprintf("%d: %.40s", i, cell.Headline()))))
		}
		return ids
	})
}

// inTime returns what find finds; nothing if it takes long.
func inTime(find func() []string) []string {
	found := make(chan []string, 1)
	go func() { found <- find() }()
	select {
	case names := <-found:
		return names
	case <-time.After(completionTime):
		return nil
	}
}
