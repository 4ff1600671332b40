package vm

import (
	"slices"
	"strings"
	"testing"
)

func TestALadderHasCPUOnlyWhereItIsNamed(t *testing.T) {
	for text, want := range map[string][]string{
		"":               {CPU},
		"  ":             {CPU},
		"cpu":            {CPU},
		"t4, l4,A100":    {"T4", "L4", "A100"},
		"A100,T4,a100":   {"A100", "T4"},
		"T4,cpu":         {"T4", CPU},
		"V5E1,V6E1,G4":   {"V5E1", "V6E1", "G4"},
		"\tH100\n, cpu ": {"H100", CPU},
	} {
		if got, err := ParseAccelerators(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestUnknownAcceleratorsAreRefusedWithTheList(t *testing.T) {
	for _, text := range []string{"T5", "T4,,L4", ",", "T4 L4", "gpu", strings.Repeat("T", 1<<16)} {
		_, err := ParseAccelerators(text)
		if err == nil || !strings.Contains(err.Error(), "T4, L4, G4, A100, H100, V5E1, V6E1 and CPU") || len(err.Error()) > 300 {
			t.Errorf("%q: %v", clip(text), err)
		}
	}
}
