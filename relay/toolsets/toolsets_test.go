package toolsets

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]Toolset{
		"core": {Core}, "notebook": {Core, Notebook}, "data , notebook": {Core, Notebook, Data}, "page": {Core, Page},
		"core,core": {Core}, "all": All, "data,all": All,
	} {
		if got, err := Parse(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ",", "notebooks", "Core", "core;data", "core,", "all,x", "x,all"} {
		got, err := Parse(text)
		if err == nil || got != nil || !strings.Contains(err.Error(), "use all, or some of core, notebook, page, data and provision") {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}
