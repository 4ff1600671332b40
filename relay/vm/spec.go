package vm

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// CPU names a VM without an accelerator in a list of accelerators.
const CPU = "CPU"

// Accelerators are the ones that Colab names, from the smallest GPU to the largest, then TPUs.
var Accelerators = []string{"T4", "L4", "G4", "A100", "H100", "V5E1", "V6E1"}

// idPattern matches the ids of VMs that a relay started.
var idPattern = regexp.MustCompile(`^colab-relay-[0-9a-f]{16}$`)

// NewID returns the id of a new VM: lower-case letters, digits and dashes, 28 characters.
func NewID() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return "colab-relay-" + hex.EncodeToString(random[:])
}

// ParseAccelerators reads accelerators that are separated by commas, in the order in which they
// are tried. An empty text is a VM without an accelerator. CPU is tried only where the text
// names it: whoever asks for a GPU gets a GPU or an error.
func ParseAccelerators(text string) ([]string, error) {
	if strings.TrimSpace(text) == "" {
		return []string{CPU}, nil
	}
	var accelerators []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToUpper(strings.TrimSpace(name))
		if name != CPU && !slices.Contains(Accelerators, name) {
			return nil, fmt.Errorf("unknown accelerator %q: use some of %s and %s, separated by commas", clip(name), strings.Join(Accelerators, ", "), CPU)
		}
		if !slices.Contains(accelerators, name) {
			accelerators = append(accelerators, name)
		}
	}
	return accelerators, nil
}

// spec returns what to ask for to get an accelerator.
func spec(accelerator string, highRAM bool) Spec {
	if accelerator == CPU {
		accelerator = ""
	}
	return Spec{Accelerator: accelerator, HighRAM: highRAM}
}

// String names a kind of VM for people.
func (s Spec) String() string {
	name := s.Accelerator
	if name == "" {
		name = CPU
	}
	if s.HighRAM {
		name += " with high RAM"
	}
	return name
}

// clip shortens what somebody typed for an error.
func clip(s string) string { return s[:min(len(s), 60)] }
