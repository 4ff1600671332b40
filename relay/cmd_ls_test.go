package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/fakevm"
)

func TestAListingOfAnyLengthEnds(t *testing.T) {
	for pages, truncated := range map[int]bool{1: false, maxPages: false, maxPages + 1: true} {
		read := 0
		got, err := readPages(func(after string) (contract.Files, error) {
			if read > 0 && after != fmt.Sprint(read) {
				t.Fatalf("page %d begins after %q", read+1, after)
			}
			read++
			return contract.Files{Files: []contract.File{{Name: fmt.Sprint(read)}}, Truncated: read < pages}, nil
		})
		if err != nil || len(got.Files) != min(pages, maxPages) || read != min(pages, maxPages) || got.Truncated != truncated {
			t.Errorf("%d pages: %d read, truncated %v, %v", pages, len(got.Files), got.Truncated, err)
		}
	}
}

func TestNamesOfFilesCannotWriteToTheTerminal(t *testing.T) {
	vm := fakevm.Start(t)
	vm.Put("d/a\x1b[2J\nb", nil)
	configtest.Home(t)
	env := configtest.Environ("COLAB_URL", vm.URL, "COLAB_SECRET", vm.Secret.Reveal())
	for _, flag := range []string{"-a", "--json"} {
		code, out, errs := relay(t, env, "", "ls", "d", flag)
		if code != 0 || bytes.ContainsRune([]byte(out), '\x1b') || strings.Contains(out, "\nb") {
			t.Errorf("exit code %d, %q, %s", code, out, errs)
		}
	}
}
