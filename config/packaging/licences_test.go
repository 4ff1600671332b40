package main

import (
	"strings"
	"testing"
)

// This test is a Go program, and so an example of one with modules.
func TestTheLicencesOfAllModulesAreIncluded(t *testing.T) {
	text, err := thirdParty(map[string][]byte{"this": thisTest(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Go and its standard library: LICENSE", "Copyright 2009 The Go Authors",
		"github.com/CycloneDX/cyclonedx-go v", "Apache License",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the licences lack %q", want)
		}
	}
}
