package variables

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"colabrelay/shared/contract"
	"colabrelay/shared/kernelpy"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

func ptr[T any](v T) *T { return &v }

func TestVariablesAreDescribed(t *testing.T) {
	tier.Long(t)
	known := []contract.Variable{
		{Name: "none", Type: "NoneType"},
		{Name: "number", Type: "int"},
		{Name: "text", Type: "str", Size: ptr(int64(7))},
		{Name: "items", Type: "list", Size: ptr(int64(4))},
		{Name: "table", Type: "dict", Size: ptr(int64(2))},
		{Name: "point", Type: "Point", Size: ptr(int64(2))},
		{Name: "matrix", Type: "ndarray", Size: ptr(int64(2)), Shape: []int64{2, 3}, Dtype: ptr("float64"), Bytes: ptr(int64(48))},
		{Name: "scalar", Type: "float32", Shape: []int64{}, Dtype: ptr("float32"), Bytes: ptr(int64(4))},
		{Name: "frame", Type: "DataFrame", Size: ptr(int64(3)), Shape: []int64{3, 2}, Bytes: ptr(int64(48))},
		{Name: "series", Type: "Series", Size: ptr(int64(3)), Shape: []int64{3}, Dtype: ptr("int64"), Bytes: ptr(int64(24))},
		{Name: "train", Type: "function"},
		{Name: "model", Type: "Model"},
	}
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		k := startKernel(t, s)
		k.runFile("../../shared/kernelpy/tests/known.py")
		got, err := Variables(t.Context(), k.Client)
		if err != nil {
			t.Fatal(err)
		}
		if got.Count != len(got.Variables) {
			t.Errorf("count %d of %d variables", got.Count, len(got.Variables))
		}
		if !slices.IsSortedFunc(got.Variables, func(a, b contract.Variable) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("not sorted by name")
		}
		byName := map[string]contract.Variable{}
		for _, v := range got.Variables {
			byName[v.Name] = v
		}
		for _, want := range known {
			ignored := cmp.Options{}
			if want.Bytes == nil && want.Size != nil || want.Name == "number" || want.Name == "none" {
				ignored = append(ignored, cmpopts.IgnoreFields(contract.Variable{}, "Bytes")) // Python's own overhead
			}
			if diff := cmp.Diff(want, byName[want.Name], ignored...); diff != "" {
				t.Errorf("%s (-want +got):\n%s", want.Name, diff)
			}
		}
		for _, name := range []string{"np", "math", "collections", "In", "Out", "exit", "get_ipython", "_"} {
			if _, ok := byName[name]; ok {
				t.Errorf("%s is no variable of the user's", name)
			}
		}
		for _, name := range []string{"number", "text", "items"} {
			if b := byName[name].Bytes; b == nil || *b <= 0 {
				t.Errorf("%s has no bytes", name)
			}
		}
	})
}

// The same cells run in two kernels; only one is asked questions meanwhile.
func TestQuestionsLeaveNoTrace(t *testing.T) {
	tier.Long(t)
	// Only the package remains in sys.modules.
	state := `(In[-2:], len(In), Out, _, __, ___, _i, _ii, get_ipython().execution_count,
		sorted(globals()), [m for m in __import__("sys").modules if "colab_relay" in m and not m.startswith("` + kernelpy.Package() + `")],
		len(__import__("sys").meta_path), get_ipython().user_ns_hidden.keys() - {"_i1"},
		list(get_ipython().history_manager.get_range(output=True)))`
	cells := []string{"1 + 1", "x = [1]; x", "'three'", "y = 4"}
	ask := func(t *testing.T, k *kernel) {
		t.Helper()
		if _, err := Variables(t.Context(), k.Client); err != nil {
			t.Fatal(err)
		}
		if got := k.preview("x"); got != "[1]" {
			t.Fatalf("x shows as %q", got)
		}
		if _, err := Inspect(t.Context(), k.Client, "none of that name"); !errors.Is(err, ErrNoVariable) {
			t.Fatal(err)
		}
	}
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		asked, left := startKernel(t, s), startKernel(t, s)
		for n, cell := range cells {
			asked.run(cell, "None")
			left.run(cell, "None")
			if n > 0 {
				ask(t, asked)
			}
		}
		if diff := cmp.Diff(left.run("", state), asked.run("", state)); diff != "" {
			t.Errorf("the kernel that was asked differs (-left alone +asked):\n%s", diff)
		}
	})
}
