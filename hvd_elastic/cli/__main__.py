from hvd_elastic.cli import main

main()
