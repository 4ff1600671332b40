package tools

import (
	"slices"
	"strings"
	"testing"
)

func TestParseToolsets(t *testing.T) {
	for text, want := range map[string][]Toolset{
		"core": {Core}, "notebook": {Core, Notebook}, "data , notebook": {Core, Notebook, Data},
		"core,core": {Core}, "all": Toolsets, "data,all": Toolsets,
	} {
		if got, err := ParseToolsets(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", ",", "notebooks", "Core", "core;data", "core,", "all,x", "x,all"} {
		got, err := ParseToolsets(text)
		if err == nil || got != nil || !strings.Contains(err.Error(), "use all, or some of core, notebook and data") {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
}

func TestARelayServesTheToolsOfItsSets(t *testing.T) {
	for _, test := range []struct{ asked, want []Toolset }{{nil, []Toolset{Core}}, {[]Toolset{Notebook}, []Toolset{Core, Notebook}}, {Toolsets, Toolsets}} {
		h := startHost(t, Config{Toolsets: test.asked})
		list := decode[struct{ Tools []struct{ Name string } }](t, h.list)
		var got []string
		for _, each := range list.Tools {
			got = append(got, each.Name)
		}
		for _, set := range Toolsets {
			for _, tool := range set.tools() {
				if on := slices.Contains(test.want, set); on != slices.Contains(got, tool.def.Name) {
					t.Errorf("%s: %s is listed: %t", test.asked, tool.def.Name, !on)
				}
			}
		}
	}
}
