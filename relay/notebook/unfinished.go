package notebook

import "errors"

var errUnfinished = errors.New("not written yet")
