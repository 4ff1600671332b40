package main

import (
	"strings"
	"testing"
)

func TestCellAndNotebookHoldTheReleasesDigests(t *testing.T) {
	amd, arm := strings.Repeat("a", 64), strings.Repeat("b", 64)
	sums := amd + "  executor-linux-amd64\n" + arm + " *executor-linux-arm64\n" + strings.Repeat("c", 64) + "  relay-linux-amd64\n"
	args := []string{"-releases", "https://example.org/releases", "-version", "v1.0.0"}
	for name, args := range map[string][]string{"cell": args, "notebook": append(args, "-notebook")} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(args, strings.NewReader(sums), &out); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{amd, arm, "https://example.org/releases", "v1.0.0"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it lacks %q", want)
				}
			}
			if strings.HasPrefix(out.String(), "{") != (name == "notebook") {
				t.Errorf("it begins with %q", out.String()[:20])
			}
			if err := run(args, strings.NewReader(amd+"  executor-linux-amd64\n"), &out); err == nil {
				t.Error("a release without an executor for arm64 was filled in")
			}
		})
	}
}
