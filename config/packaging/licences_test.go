package main

import (
	"bytes"
	"os"
	"path/filepath"
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

func TestAModuleWithoutALicenceFailsTheRelease(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "licenses_test.go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := writeLicence(&bytes.Buffer{}, "some/module", folder)
	if err == nil || !strings.Contains(err.Error(), `"some/module"`) {
		t.Errorf("the error is %v", err)
	}
}
