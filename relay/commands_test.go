package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/config/configtest"
	"colabrelay/relay/terminal"
	"colabrelay/shared/auth"
)

func TestAnUnknownRuntimeIsAWrongCommandLine(t *testing.T) {
	dir := configtest.Home(t)
	file := filepath.Join(dir, "a.ipynb")
	if err := os.WriteFile(file, []byte(`{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := map[string][]string{
		"attach": {"x"}, "get": {"x"}, "input": {"x"}, "interrupt": {"x"}, "logs": {"x"}, "nb run": {file}, "put": {file}, "restart": {"--yes"}, "run": {"-c", "1"},
	}
	paired := configtest.Environ("COLAB_URL", "http://127.0.0.1:1", "COLAB_SECRET", auth.GenerateSecret().Reveal())
	for _, getenv := range []func(string) string{configtest.Environ(), paired} {
		for _, cmd := range allCommands(rootCommand(getenv, terminal.Streams{})) {
			if cmd.Flags().Lookup("runtime") == nil || cmd.Name() == "export" { // which exports runs of runtimes that are gone, too
				continue
			}
			var out, errs bytes.Buffer
			args := slices.Concat([]string{cli.CommandName}, strings.Fields(title(cmd)), []string{"--runtime", "nope"}, arguments[title(cmd)])
			code := run(t.Context(), args, getenv, terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
			if code != cli.ExitUsage || !strings.Contains(errs.String(), `runtime "nope" is not paired`) || strings.Contains(errs.String(), "--help") {
				t.Errorf("%v: exit code %d, %q %q", args, code, out.String(), errs.String())
			}
		}
	}
}

// A word that is a command would hide it in the list of suggestions, and a suggestion that does
// not exist leads nowhere.
func TestOtherWordsLeadToCommandsThatExist(t *testing.T) {
	root := rootCommand(configtest.Environ(), terminal.Streams{})
	for after, words := range cli.OtherWords {
		parent := root
		if after != "" {
			parent = commandBelow(root, after)
		}
		if parent == nil {
			t.Fatalf("%q is no command", after)
		}
		for word, names := range words {
			if commandBelow(parent, word) != nil {
				t.Errorf("%s %s: is a command", after, word)
			}
			for _, name := range names {
				if found := commandBelow(parent, name); found == nil || !found.IsAvailableCommand() {
					t.Errorf("%s %s: %q is no command", after, word, name)
				}
			}
		}
	}
	for _, word := range append(slices.Collect(maps.Keys(cli.ShellCommands)), cli.ShellWords...) {
		if commandBelow(root, word) != nil {
			t.Errorf("%s: is a command", word)
		}
	}
	if _, _, text := relay(t, configtest.Environ(), "", "cat"); !strings.Contains(text, "`colab-relay run -c '!cat FILE'`") || !strings.Contains(text, "get FILE") {
		t.Error(text)
	}
}

// commandBelow returns the command of that name below another one, or nil.
func commandBelow(parent *cobra.Command, name string) *cobra.Command {
	for _, each := range parent.Commands() {
		if each.Name() == name {
			return each
		}
	}
	return nil
}
