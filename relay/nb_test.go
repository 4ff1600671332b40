package main

import (
	"os"
	"strings"
	"testing"

	"colabrelay/relay/config/configtest"
)

// Who read a cell without its invisible characters must not delete them by writing it back.
func TestNbEditLosesNothingThatNbCellsDoesNotShow(t *testing.T) {
	dir := configtest.Home(t)
	t.Chdir(dir)
	const before = `{"cells": [{"cell_type": "code", "execution_count": null, "id": "aa", "metadata": {}, "outputs": [], "source": "x = 1\r\ny = '\f\u2028'"}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}`
	write(t, "n.ipynb", []byte(before))
	code, out, errs := relay(t, configtest.Environ(), "", "nb", "edit", "n.ipynb", "aa", "-c", "x = 2\ny = ''")
	if after, err := os.ReadFile("n.ipynb"); code == 0 || !strings.Contains(errs, "U+000C, U+2028") || !strings.Contains(errs, "--find") || err != nil || string(after) != before {
		t.Errorf("%d: %s%s, %v", code, out, errs, err)
	}
	if code, out, errs := relay(t, configtest.Environ(), "", "nb", "edit", "n.ipynb", "aa", "--find", "1\ny", "--replace", "2\nz"); code != 0 {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if after, err := os.ReadFile("n.ipynb"); err != nil || !strings.Contains(string(after), `"x = 2\r\nz = '\f`) {
		t.Errorf("%s, %v", after, err)
	}
}
