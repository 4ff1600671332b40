package config

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

func TestTheListOfSettingsIsThatOfTheSampleFile(t *testing.T) {
	text, err := os.ReadFile("../../config/relay.env")
	if err != nil {
		t.Fatal(err)
	}
	var sample, listed []string
	for _, match := range regexp.MustCompile(`(?m)^([A-Z_]+)=`).FindAllStringSubmatch(string(text), -1) {
		sample = append(sample, match[1])
	}
	for _, s := range All {
		listed = append(listed, s.Variable)
	}
	slices.Sort(sample)
	slices.Sort(listed)
	if !slices.Equal(sample, listed) {
		t.Errorf("config/relay.env has %v\nAll in settings.go has %v", sample, listed)
	}
}
