package notebook

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// named returns a notebook with one cell for each id; "" for none.
func named(t *testing.T, minor int, key string, ids ...string) *Document {
	t.Helper()
	var cells []string
	for i, id := range ids {
		member := ""
		switch {
		case id != "" && key == "id":
			member = fmt.Sprintf(`"id": %q, `, id)
		case id != "":
			member = fmt.Sprintf(`"metadata": {"id": %q}, `, id)
		}
		cells = append(cells, fmt.Sprintf(`{"cell_type": "code", %s"source": "x = %d"}`, member, i))
	}
	return parsed(t, fmt.Sprintf(`{"nbformat": 4, "nbformat_minor": %d, "cells": [%s]}`, minor, strings.Join(cells, ", ")))
}

func handles(d *Document) (all []string) {
	for i := range d.Len() {
		all = append(all, d.Cell(i).Handle)
	}
	return all
}

func TestHandles(t *testing.T) {
	long := strings.Repeat("a", 65)
	for name, test := range map[string]struct {
		d    *Document
		want string
	}{
		"ids":            {named(t, 5, "id", "a", "b-_9Z"), "a b-_9Z"},
		"bad ids":        {named(t, 5, "id", "a", "", "a", "a b", long), "a #1-8ff436de #2-1431b986 #3-b8478134 #4-b31bbd46"},
		"ids before 4.5": {named(t, 4, "id", "a"), "#0-bc3b5864"},
		"Colab":          {named(t, 0, "metadata", "AbC-_1234567", "AbC-_1234567", ""), "AbC-_1234567 #1-8ff436de #2-1431b986"},
		"a later cell's": {parsed(t, `{"nbformat": 4, "nbformat_minor": 5, "cells": [{"metadata": {"id": "a"}, "source": "x = 0"}, {"id": "a"}]}`), "#0-bc3b5864 a"},
	} {
		got := handles(test.d)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %q", name, got)
		}
		for i, handle := range got {
			if found, err := test.d.Find(handle); found != i || err != nil {
				t.Errorf("%s: %s is found at %d, %v", name, handle, found, err)
			}
		}
	}
}

func TestACellThatChangedIsNotFoundByItsOldHandle(t *testing.T) {
	d := named(t, 5, "id", "first-cell", "second-cell", "third", "")
	if missing, ok := errors.AsType[*NoCellError](func() error { _, err := d.Find("frist-cell"); return err }()); !ok || !reflect.DeepEqual(missing.Nearest, []string{"first-cell"}) {
		t.Errorf("%+v", missing)
	}
	handle := d.Cell(3).Handle
	if err := d.SetSource(3, "another source", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Find(handle); !errors.Is(err, ErrCellChanged) || !strings.Contains(err.Error(), d.Cell(3).Handle) {
		t.Error(err)
	}
}

func TestIDsAreRepaired(t *testing.T) {
	d := named(t, 5, "id", "a", "", "a", "a b", "c")
	notes := d.RepairIDs()
	ids := handles(d)
	want := []string{fmt.Sprintf("3 cells had no valid id of their own and have one now; counted from 0: cell 1 has %s, cell 2 has %s, cell 3 has %s.", ids[1], ids[2], ids[3])}
	if !reflect.DeepEqual(notes, want) || ids[0] != "a" || ids[4] != "c" {
		t.Errorf("%q, %q", notes, ids)
	}
	text := fmt.Sprintf(`"id": %q, "source": "x = 1"}, {"cell_type": "code", "id": %q, "source": "x = 2"}, {"cell_type": "code", "id": %q,`, ids[1], ids[2], ids[3])
	if !strings.Contains(string(d.Bytes()), text) {
		t.Errorf("%s", d.Bytes())
	}
	if notes := d.RepairIDs(); notes != nil {
		t.Errorf("repaired again: %q", notes)
	}
	if notes := named(t, 4, "id", "", "a").RepairIDs(); notes != nil {
		t.Errorf("before 4.5: %q", notes)
	}
}

// The oracle is nbformat.validate.
func TestWhatMakesANotebookInvalidIsCounted(t *testing.T) {
	const meta, code = `"metadata": {}, `, `{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": ""`
	for file, want := range map[string]int{
		`{"nbformat": 4, "nbformat_minor": 5, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                              0,
		`{"nbformat": 4, "nbformat_minor": 4, ` + meta + `"cells": [` + code + `}]}`:                                                         0,
		`{"nbformat": 4, "nbformat_minor": 4, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                              1,
		`{"nbformat": 4, ` + meta + `"cells": [` + code + `, "id": "a"}]}`:                                                                   2,
		`{"nbformat": 4, "nbformat_minor": 5, "cells": [` + code + `, "id": "a"}, ` + code + `, "id": "a"}, {"source": "", "outputs": []}]}`: 3,
	} {
		if faults, _ := parsed(t, file).faults(); len(faults) != want {
			t.Errorf("%s: %q, want %d", file, faults, want)
		}
	}
}

func TestUpgrade(t *testing.T) {
	d := named(t, 0, "metadata", "AbC-_1234567", "", "AbC-_1234567")
	notes, err := d.Upgrade()
	ids := handles(d)
	if err != nil || len(notes) != 2 || notes[0] != "The notebook was nbformat 4.0 and is nbformat 4.5 now, in which each cell has an id." || d.Minor() != 5 || ids[0] != "AbC-_1234567" {
		t.Errorf("%q, %q", notes, ids)
	}
	want := fmt.Sprintf(`{"nbformat": 4, "nbformat_minor": 5, "cells": [{"cell_type": "code", "id": "AbC-_1234567", "metadata": {"id": "AbC-_1234567"}, "source": "x = 0"}, `+
		`{"cell_type": "code", "id": %q, "source": "x = 1"}, {"cell_type": "code", "id": %q, "metadata": {"id": "AbC-_1234567"}, "source": "x = 2"}]}`, ids[1], ids[2])
	if got := string(d.Bytes()); got != want {
		t.Error(got)
	}
	if notes, err := d.Upgrade(); notes != nil || err != nil {
		t.Errorf("upgraded again: %q, %v", notes, err)
	}
}
