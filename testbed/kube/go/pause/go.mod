module hvd-elastic.test/pause

go 1.23
