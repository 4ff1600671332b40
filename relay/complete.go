package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/config"
	"colabrelay/relay/history"
	"colabrelay/relay/pairing"
	"colabrelay/relay/plain"
)

// Completion runs each time a person presses Tab, so it uses no network and little time.
const (
	completionTime = time.Second
	maxCompletions = 50 // newest runs
)

// addCompletions completes the arguments of the commands that do not complete their own.
func addCompletions(root *cobra.Command, set *config.Settings) {
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

// completeRuntimes offers the names of the paired runtimes to the shell.
func completeRuntimes(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
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

// firstArgument uses complete for the first argument only.
func firstArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
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
		found := make(chan []history.Run, 1)
		go func() {
			dir := config.Load(*set).HistoryDir
			if dir == "" {
				found <- nil
				return
			}
			all, _ := history.New(history.Config{Dir: dir}).List()
			found <- all
		}()
		var ids []string
		select {
		case all := <-found:
			for _, r := range all[:min(len(all), maxCompletions)] {
				ids = append(ids, cobra.CompletionWithDesc(plain.Line(r.ExecutionID), plain.Line(fmt.Sprintf("%s, %s: %.40s", r.Runtime, r.Status, cmp.Or(r.Name, r.CodePreview)))))
			}
		case <-time.After(completionTime):
		}
		return ids, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}
