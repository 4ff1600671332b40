package main

import (
	"strings"
	"testing"
)

func TestCellHoldsTheReleasesDigests(t *testing.T) {
	amd, arm := strings.Repeat("a", 64), strings.Repeat("b", 64)
	sums := amd + "  executor-linux-amd64\n" + arm + "  executor-linux-arm64\n" + amd + "  relay-linux-amd64\n"
	var cell strings.Builder
	args := []string{"-releases", "https://example.org/releases", "-version", "v1.0.0"}
	if err := run(args, strings.NewReader(sums), &cell); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{amd, arm, "https://example.org/releases", "v1.0.0"} {
		if !strings.Contains(cell.String(), want) {
			t.Errorf("the cell lacks %q", want)
		}
	}
	if err := run(args, strings.NewReader(amd+"  executor-linux-amd64\n"), &cell); err == nil {
		t.Error("a release without an executor for arm64 made a cell")
	}
}
