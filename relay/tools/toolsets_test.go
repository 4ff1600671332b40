package tools

import (
	"slices"
	"strings"
	"testing"
)

func TestParseToolsets(t *testing.T) {
	for text, want := range map[string][]Toolset{
		"core": {Core}, "notebook": {Core, Notebook}, "data , notebook": {Core, Notebook, Data}, "page": {Core, Page},
		"core,core": {Core}, "all": Toolsets, "data,all": Toolsets,
	} {
		if got, err := ParseToolsets(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ",", "notebooks", "Core", "core;data", "core,", "all,x", "x,all"} {
		got, err := ParseToolsets(text)
		if err == nil || got != nil || !strings.Contains(err.Error(), "use all, or some of core, notebook, page, data and provision") {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestARelayServesTheToolsOfItsSets(t *testing.T) {
	for _, test := range []struct{ asked, want []Toolset }{{nil, []Toolset{Core}}, {[]Toolset{Notebook}, []Toolset{Core, Notebook}}, {[]Toolset{Page}, []Toolset{Core, Page}}, {Toolsets, Toolsets}} {
		h := startHost(t, Config{Toolsets: test.asked})
		list := decode[struct{ Tools []struct{ Name string } }](t, h.list)
		var got []string
		for _, each := range list.Tools {
			got = append(got, each.Name)
		}
		var want []string
		for _, set := range sets {
			for _, tool := range set.tools() {
				if slices.Contains(test.want, set.name) && !slices.Contains(want, tool.def.Name) {
					want = append(want, tool.def.Name)
				}
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: it lists %s, want %s", test.asked, got, want)
		}
	}
}
